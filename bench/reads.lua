-- GET one path after another. Arguments: a file with a path on each line.
local requests, place = {}, 0

function init(args)
  for path in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("GET", path)
  end
end

function request()
  place = place % #requests + 1
  return requests[place]
end
