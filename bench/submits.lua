-- Submit one body with one worker handle after another.
-- Arguments: a file with a handle on each line; a file that is the body; how many milliseconds to wait before each.
local requests, place = {}, 0

function init(args)
  local file = assert(io.open(args[2], "rb"))
  local body = file:read("*a")
  file:close()
  for handle in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("POST", nil, { ["Authorization"] = "Bearer " .. handle }, body)
  end
  local pause_ms = tonumber(args[3])
  if pause_ms > 0 then
    function delay() return pause_ms end -- wrk asks for it only where it exists
  end
end

function request()
  place = place % #requests + 1
  return requests[place]
end
