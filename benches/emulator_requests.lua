-- Requests for sound effects, each with a key of its own, for wrk: see PERFORMANCE.md, "The emulator".
local n = 0
local id = 0
function setup(thread) id = id + 1; thread:set("id", id) end
function request()
  n = n + 1
  local body = string.format('{"prompt":"gull %d-%d","options":{"duration_seconds":0.5}}', id, n)
  return wrk.format("POST", "/api/v1/sound-effects", {["Authorization"]="Bearer emulator-key",["Content-Type"]="application/json",["Idempotency-Key"]=string.format("k-%d-%d", id, n)}, body)
end
