-- Clips of the media server by a Zipf distribution (exponent 1), for wrk with
-- one connection per thread:
--
-- wrk … -s clips.lua URL -- SIZES SEED
--
-- SIZES has one line per clip, its size; clip i is /c%05d and begins with its
-- own name.
local threads, clip = {}, 0

function setup(thread)
   thread:set("number", #threads)
   table.insert(threads, thread)
end

function init(args)
   sizes, cumulated, wrong = {}, {}, 0
   local sum = 0
   for line in io.lines(args[1]) do
      table.insert(sizes, tonumber(line))
      sum = sum + 1 / #sizes
      table.insert(cumulated, sum)
   end
   math.randomseed(tonumber(args[2]) * 1000 + number)
end

function request()
   local share, low, high = math.random() * cumulated[#cumulated], 1, #cumulated
   while low < high do
      local middle = math.floor((low + high) / 2)
      if cumulated[middle] < share then low = middle + 1 else high = middle end
   end
   -- Popular clips lie anywhere.
   clip = low * 7919 % #sizes
   return wrk.format("GET", string.format("/c%05d", clip))
end

function response(status, headers, body)
   local name = string.format("c%05d", clip)
   if status ~= 200 or #body ~= sizes[clip + 1] or body:sub(1, #name) ~= name then
      wrong = wrong + 1
   end
end

function done(summary, latency, requests)
   local wrongs = 0
   for _, thread in ipairs(threads) do wrongs = wrongs + thread:get("wrong") end
   local errors = summary.errors
   wrongs = wrongs + errors.connect + errors.read + errors.write + errors.timeout
   print(string.format("\ntotal %d\nbytes %d\nns %d\nrequests %d\nlatency_ns %d\nwrong %d",
      summary.bytes, summary.bytes, summary.duration * 1000, summary.requests,
      summary.duration * 1000 * #threads / math.max(summary.requests, 1), wrongs))
end
