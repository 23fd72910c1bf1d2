"""Deferral: requests that may not be made yet, and how they wait without anybody else waiting.

    gate         which origins' requests may leave the scheduler now: drives `core.deferral`
    timetable    the timer that opens again what is shut
    lifetime     when the downloader begins and ends a request
    queue        Scrapy's own priority queue, asking the gate
    scheduler    any other scheduler, asking the gate
    leftovers    what outlasts a crawl because that other scheduler does not take it back
    returning    what a request carries while it is back in the scheduler
    pacing       the turns of a paced origin: who stands in line, who takes one, what the answer tells
    wire         the last place before a request leaves

Knows Scrapy's slots, queues and handlers; no other part of this package does.
"""
