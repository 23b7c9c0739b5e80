-- What wrk sends and tells: the requests of the bench, each with a number of its own, in as many sessions as there are
-- connections, of 50 turns each; and the outcome in a line for the bench.

local function read(name)
  local file = assert(io.open(os.getenv(name), "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local run = os.getenv("WRK_RUN")
local connections = tonumber(os.getenv("WRK_CONNECTIONS"))
local headers = {
  ["accept"] = "application/json",
  ["accept-encoding"] = "gzip, deflate",
  ["authorization"] = "Bearer sk-bench",
  ["content-type"] = "application/json",
  ["user-agent"] = "OpenAI/JS 7.15.0",
}
local n_sent = 0

-- The body, cut where a number goes: to look for the marks in each request would cost more than to send it.
local parts, marks = {}, {}
local body, at = read("WRK_BODY"), 1
for first, mark, behind in body:gmatch("()(@@%u+@@@?)()") do
  parts[#parts + 1] = body:sub(at, first - 1)
  parts[#parts + 1] = ""
  marks[#parts] = mark
  at = behind
end
parts[#parts + 1] = body:sub(at)

function request()
  local session = string.format("%s%02x%06x", run, n_sent % connections, math.floor(n_sent / (50 * connections)))
  local number = string.format("%010d", n_sent)
  n_sent = n_sent + 1
  for part, mark in pairs(marks) do
    parts[part] = mark == "@@NUMBER@@" and number or session
  end
  return wrk.format("POST", "/v1/chat/completions", headers, table.concat(parts))
end

function done(summary, latency)
  local errors = summary.errors
  local n_failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("OUTCOME %d %d %d", summary.requests, summary.duration, n_failed))
  for part = 1, 199, 2 do
    io.write(string.format(" %d", latency:percentile(part / 2)))
  end
  io.write("\n")
end
