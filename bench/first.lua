-- GET an address that nobody has asked for before. Arguments: a path whose "{}" becomes a number, and how many numbers.
local before, after, numbers, place = "", "", 1, 0

function init(args)
  before, after = args[1]:match("^(.-){}(.*)$")
  numbers = tonumber(args[2])
  place = os.time() * 7919 -- another run of this goes on with other numbers
end

function request()
  place = (place + 1) % numbers
  return wrk.format("GET", before .. string.format("%.0f", place) .. after)
end
