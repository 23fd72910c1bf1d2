"""Deferral: requests that may not be made yet, and how they wait without delaying others.

    gate         which origins' requests may leave the scheduler now: drives `core.deferral`
    timetable    the timer that reopens what is shut
    lifetime     when the downloader begins and ends a request
    queue        Scrapy's own priority queue, asking the gate
    scheduler    any other scheduler, asking the gate
    leftovers    requests kept after a crawl because that scheduler does not take them back
    returning    what a request carries while it is back in the scheduler
    pacing       the turns of a paced origin: which request waits, which takes one, what an answer changes
    wire         the last place before a request leaves

Only this part of the package knows Scrapy's slots, queues and handlers.
"""
