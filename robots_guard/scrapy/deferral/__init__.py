"""Deferral: requests that may not be made yet wait without delaying other requests.

    gate            which origins' requests may leave the scheduler now: drives `decisions.deferral`
    buckets         which buckets of a queue are open, and which is next
    waiting_limits  how long a request waits in the scheduler, and a crawl for its requests
    queue           Scrapy's own priority queue, restricted by the gate
    scheduler       any other scheduler, restricted by the gate
    pacing          the turns of a paced origin: waiting for them, taking and moving them

Only this part of the package and `patches` use Scrapy's slots, queues and handlers.
"""
