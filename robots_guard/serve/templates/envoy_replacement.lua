-- Replaces the body of a response that robots_guard has replaced. The site's body is dropped as it
-- arrives, and so are its trailers. This is a filter of its own, because a filter that has held a
-- response for a call can no longer read its body piece by piece.

-- What `escaped` of the filter `review` has escaped.
local function unescaped(text)
  return (text:gsub("%%(%x%x)", function(code) return string.char(tonumber(code, 16)) end))
end

-- Removes all fields.
local function clear(fields)
  local names = {}
  for name, _ in pairs(fields) do names[#names + 1] = name end
  for _, name in ipairs(names) do fields:remove(name) end
end

function envoy_on_response(handle)
  local headers = handle:headers()
  if headers:get("robots-guard-replaced") == nil then return end
  headers:remove("robots-guard-replaced")
  local own = handle:streamInfo():dynamicMetadata():get("robots_guard")
  if own == nil then return end
  local body = unescaped(own["body"])
  if headers:get(":status") ~= "204" then -- RFC 9110 section 8.6
    headers:replace("content-length", tostring(#body))
  end
  if handle:streamInfo():protocol() ~= "HTTP/2" then -- the site may send its body for long
    handle:streamInfo():drainConnectionUponCompletion()
  end
  local rest = body
  for chunk in handle:bodyChunks() do
    chunk:setBytes(rest)
    rest = ""
  end
  local trailers = handle:trailers()
  if trailers ~= nil then
    clear(trailers)
  elseif rest ~= "" then -- no body has come; with trailers, `body` would crash Envoy 1.40
    handle:body(true):setBytes(rest)
  end
end
