from robots_guard.mitmproxy import RobotsGuard

addons = [RobotsGuard()]  # mitmdump -s mitmproxy_addon.py --set robots_guard_agent=mybot
