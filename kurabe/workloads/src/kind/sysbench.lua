-- Logs each transaction of a script of sysbench: when it ended and how long it took, in microseconds.
local ffi = require("ffi")
ffi.cdef([[
typedef struct { long seconds; long nanoseconds; } kurabe_time;
int clock_gettime(int clock, kurabe_time *time);
]])

require(os.getenv("KURABE_SCRIPT"))

local begin_thread, end_thread, transaction = thread_init, thread_done, event
local time = ffi.new("kurabe_time")
local log

local function now()
   local monotonic = 1
   ffi.C.clock_gettime(monotonic, time)
   return tonumber(time.seconds) * 1000000 + math.floor(tonumber(time.nanoseconds) / 1000)
end

function thread_init()
   begin_thread()
   log = assert(io.open(os.getenv("KURABE_LOG") .. sysbench.tid, "w"))
end

function event(...)
   local begun = now()
   local answer = transaction(...)
   local ended = now()
   log:write(string.format("%.0f %.0f\n", ended, ended - begun))
   return answer
end

function thread_done()
   log:close()
   end_thread()
end
