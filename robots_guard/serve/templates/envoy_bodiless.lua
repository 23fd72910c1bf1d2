-- Marks a request that ends with its head, and chooses its route again: only a marked request leaves its
-- connection to others. Whether a body follows is in no field of a request over HTTP/2, and Envoy
-- removes Transfer-Encoding before it chooses a route.

function envoy_on_request(handle)
  for _ in handle:bodyChunks() do return end -- with a body, the head goes on from here, unmarked
  handle:headers():replace("robots-guard-bodiless", "1")
  handle:clearRouteCache()
end
