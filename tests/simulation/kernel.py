"""The kernel: virtual time, and tasks scheduled in an order drawn by a seed.

A task is a coroutine that belongs to a process. It waits only for futures of this kernel, so a run
is a function of its seed.

Invariant: time passes only when no task can run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

STEPS = 100_000  # of all tasks of a history: more means a loop that waits for nothing


BRIEF = 0.1  # seconds: a call in a thread that takes no longer may block its process


class Stuck(BaseException):
    """The tasks of a history run endlessly. The guard does not catch this exception."""


class Cancelled(BaseException):
    """The task was cancelled; the counterpart of asyncio.CancelledError."""


class Future:
    """A value that will be available later."""

    __slots__ = ("_kernel", "error", "is_done", "value", "waiting")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.is_done = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.waiting: list[Task | Future] = []  # a waiting future is settled with None

    def done(self) -> bool:
        return self.is_done

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the value, once; later ones are ignored."""
        if self.is_done:
            return
        self.is_done, self.value, self.error = True, value, error
        for each in self.waiting:
            if isinstance(each, Task):
                self._kernel.resume(each, self)
            else:
                each.settle()
        self.waiting.clear()

    def __await__(self) -> Generator[Future, None, Any]:
        if not self.is_done:
            yield self
        if self.error is not None:
            raise self.error
        return self.value


class Task(Future):
    """A coroutine of a process, and its result."""

    __slots__ = ("coroutine", "is_cancelled", "name", "process", "waits_for")

    def __init__(
        self, kernel: Kernel, process: Process, coroutine: Coroutine[Any, Any, Any], name: str
    ) -> None:
        super().__init__(kernel)
        self.process = process
        self.coroutine = coroutine
        self.name = name
        self.waits_for: Future | None = None
        self.is_cancelled = False


class Process:
    """A process, whose tasks end together. Its clocks have their own offset and rate."""

    def __init__(
        self, kernel: Kernel, name: str, *, offset: float = 0.0, rate: float = 1.0
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.is_alive = True
        self.offset = offset  # seconds by which the wall clock is ahead
        self.rate = rate
        self.dies_at_step = -1
        self.at_death: Callable[[], None] = lambda: None
        self.tasks: set[Task] = set()
        self._steps = 0

    def now(self) -> float:
        """Return the wall clock, in seconds since 1970."""
        return EPOCH + self.kernel.time * self.rate + self.offset

    def monotonic(self) -> float:
        """Return the seconds since the process's machine was started."""
        return 1000.0 + self.kernel.time * self.rate

    def token(self, size: int) -> str:
        """Return random hexadecimal text for `size` bytes."""
        return f"{self.kernel.random.getrandbits(8 * size):0{2 * size}x}"

    def step(self) -> bool:
        """Count a step. Returns whether the process is still alive."""
        self._steps += 1
        if self._steps == self.dies_at_step:
            self.die()
        return self.is_alive

    def die(self) -> None:
        """End at once, as by SIGKILL: no task continues, and no `finally` runs."""
        self.is_alive = False
        self.kernel.note(self.name, "dies")
        self.at_death()


EPOCH = 1_800_000_000.0  # seconds since 1970 at which every history begins


class Kernel:
    """A scheduler of tasks in virtual time."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.time = 0.0  # seconds since the start of the history
        self.trace: list[tuple[float, str, str]] | None = None  # set to a list to enable tracing
        self.crashes: list[tuple[str, BaseException]] = []
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._steps = 0

    def note(self, where: str, what: str) -> None:
        """Add a line to the trace, if tracing is enabled."""
        if self.trace is not None:
            self.trace.append((self.time, where, what))

    # -- time --------------------------------------------------------------------------------------

    def call_at(self, moment: float, callback: Callable[[], None]) -> None:
        """Call a function at a moment."""
        heappush(self._timers, (max(moment, self.time), next(self._serial), callback))

    def after(self, seconds: float) -> Future:
        """Return a future that is settled after `seconds` of true time."""
        future = Future(self)
        self.call_at(self.time + seconds, future.settle)
        return future

    # -- tasks -------------------------------------------------------------------------------------

    def start(
        self,
        process: Process,
        coroutine: Coroutine[Any, Any, Any],
        name: str,
        *,
        eager: bool = False,
    ) -> Task:
        """Start a task; an eager one runs to its first wait at once."""
        task = Task(self, process, coroutine, name)
        process.tasks.add(task)
        if eager:
            self._drive(task)
        else:
            self._ready.append(task)
        return task

    def resume(self, task: Task, future: Future) -> None:
        """Make a task ready if it waits for this future."""
        if task.waits_for is future:
            task.waits_for = None
            self._ready.append(task)

    def cancel(self, task: Task) -> None:
        """Raise Cancelled in the task, at the point where it waits."""
        if task.is_done or task.is_cancelled:
            return
        task.is_cancelled = True
        if task.waits_for is not None:
            task.waits_for = None
            self._ready.append(task)

    def run(self) -> None:
        """Run until no task or timer is left. Raises Stuck."""
        ready, timers, drawn = self._ready, self._timers, self.random.random
        while True:
            while ready:
                at = int(drawn() * len(ready))
                ready[at], ready[-1] = ready[-1], ready[at]
                self._step(ready.pop())
            if not timers:
                return
            self.time = timers[0][0]
            while timers and timers[0][0] <= self.time:
                heappop(timers)[2]()

    def _step(self, task: Task) -> None:
        self._steps += 1
        if self._steps > STEPS:
            raise Stuck(f"{STEPS} steps; the last is of {task.process.name}: {task.name}")
        if task.process.step():
            self._drive(task)

    def _drive(self, task: Task) -> None:
        try:
            if task.is_cancelled:
                task.is_cancelled = False
                future = task.coroutine.throw(Cancelled())
            else:
                future = task.coroutine.send(None)
        except StopIteration as ended:
            self._end(task, ended.value, None)
        except (Exception, Cancelled) as error:  # noqa: BLE001  it is passed to the tasks that wait
            self._end(task, None, error)
        else:
            self._wait(task, future)

    def _wait(self, task: Task, future: Future) -> None:
        task.waits_for = future
        if future.is_done:
            self.resume(task, future)
        else:
            future.waiting.append(task)

    def _end(self, task: Task, value: Any, error: BaseException | None) -> None:
        task.process.tasks.discard(task)
        task.settle(value, error)
        if isinstance(error, Exception):
            self.crashes.append((f"{task.process.name}: {task.name}", error))


class Gate:
    """A FIFO semaphore that admits `width` tasks at a time."""

    def __init__(self, kernel: Kernel, width: int) -> None:
        self.width = width
        self.free = width
        self._kernel = kernel
        self._waiting: deque[Future] = deque()

    async def acquire(self) -> None:
        if self.free > 0 and not self._waiting:
            self.free -= 1
            return
        entry = Future(self._kernel)
        self._waiting.append(entry)
        try:
            await entry
        except Cancelled:
            if entry.is_done:
                self.release()
            else:
                self._give_up(entry)
            raise

    async def acquire_within(self, seconds: float) -> bool:
        """Wait to be admitted, at most `seconds` of true time.

        Returns whether the task was admitted.
        """
        if self.free > 0 and not self._waiting:
            self.free -= 1
            return True
        entry = Future(self._kernel)
        self._waiting.append(entry)
        self._kernel.call_at(self._kernel.time + seconds, lambda: self._give_up(entry))
        try:
            return bool(await entry)
        except Cancelled:
            if entry.is_done and entry.value:
                self.release()
            else:
                self._give_up(entry)
            raise

    def _give_up(self, entry: Future) -> None:
        if not entry.is_done:
            self._waiting.remove(entry)
            entry.settle(False)

    def release(self) -> None:
        if self._waiting:
            self._waiting.popleft().settle(True)
        else:
            self.free += 1


class ThreadCall:
    """A call in a thread, in place of a concurrent.futures.Future.

    If it `is_brief`, it ends while the process waits for it and runs no other task.
    """

    def __init__(self, runtime: Runtime, is_brief: bool) -> None:
        self._runtime = runtime
        self._is_brief = is_brief
        self.outcome = Future(runtime.kernel)

    def done(self) -> bool:
        return self.outcome.is_done

    def exception(self, timeout: float) -> BaseException | None:
        if self._is_brief and timeout:
            self._runtime.take_effect(self, 0.0)
        if not self.done():
            raise TimeoutError
        return self.outcome.error

    def result(self) -> Any:
        if self.outcome.error is not None:
            raise self.outcome.error
        return self.outcome.value


class Runtime:
    """The guard's Runtime for one process: its tasks, sleeps and thread pool.

    `delays` returns the seconds that a call in a thread takes before and after its effect.
    """

    def __init__(self, process: Process, delays: Callable[[Any], tuple[float, float]]) -> None:
        self._process = process
        self._kernel = self.kernel = process.kernel
        self._delays = delays
        self.gates: list[Gate] = []
        # calls in threads that have not taken effect yet
        self.calls: dict[Future, Callable[[], Any]] = {}
        self.is_closed = False

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Task:
        eager = self._kernel.random.random() < 0.3
        return self._kernel.start(self._process, work, work.__qualname__, eager=eager)

    async def wait(self, handle: Task) -> Any:
        return await handle

    async def wait_at_most(self, handle: Task, seconds: float) -> bool:
        if handle.is_done:
            return True
        either = self._kernel.after(seconds / self._process.rate)
        handle.waiting.append(either)
        await either
        return handle.is_done

    def semaphore(self, width: int) -> Gate:
        gate = Gate(self._kernel, width)
        self.gates.append(gate)
        return gate

    async def sleep(self, seconds: float) -> None:
        await self._kernel.after(max(0.0, seconds) / self._process.rate)

    def submit(self, function: Callable[..., Any], *args: Any) -> ThreadCall:
        delays = self._delays((function, *args))
        call = ThreadCall(self, sum(delays) <= BRIEF and self._kernel.random.random() < 0.5)
        self.calls[call.outcome] = partial(_call, function, args)
        before, after = delays
        self._kernel.call_at(self._kernel.time + before, lambda: self.take_effect(call, after))
        return call

    async def result(self, call: ThreadCall) -> Any:
        return await call.outcome

    def allow_threads(self, count: int) -> None:
        """Calls take effect without threads here."""

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self.result(self.submit(function, *args))

    def take_effect(self, call: ThreadCall, after: float) -> None:
        """Make the call, unless it has been made; its outcome is known `after` some seconds."""
        if self._process.is_alive and call.outcome in self.calls:
            outcome = self.calls.pop(call.outcome)()
            if after:
                end = partial(call.outcome.settle, *outcome)
                self._kernel.call_at(self._kernel.time + after, end)
            else:
                call.outcome.settle(*outcome)

    def close(self) -> None:
        self.is_closed = True


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    try:
        return function(*args), None
    except Exception as error:  # noqa: BLE001  it is passed to the caller
        return None, error
