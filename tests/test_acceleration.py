"""The mechanism of accelerate(): scopes, putting replacements in and out, and comparing; mostly on made-up modules."""

import asyncio
import collections
import copy
import functools
import importlib
import importlib.util
import inspect
import itertools
import logging
import pickle
import pkgutil
import random
import sys
import threading
import warnings

import pytest

import fastexport
from fastexport import acceleration
from fastexport.acceleration import AccelerationError, Replacement, Table, accelerate, install, uninstall
from fastexport.acceleration._patches import Patches
from fastexport.acceleration._replacement import digest, find
from helpers import run_python

SOURCE = """
import functools

def double(x):
    '''Twice x.'''
    return x + x

def fail(x):
    raise ValueError(f"no {x}")

def outer(x):
    return double(x) + 1

class Box:
    def __init__(self, x):
        self.x = x

    def get(self):
        return self.x

    @property
    def half(self):
        return self.x / 2

    @half.setter
    def half(self, value):
        self.x = value * 2

    @staticmethod
    def plain(x):
        return x

    @classmethod
    def make(cls, x):
        return cls(x)
"""
_numbers = itertools.count()


class World:
    """A module with functions, a table of replacements for it, and accelerate() working on that table."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        self.name = f"stock_{next(_numbers)}"
        self.module = self.write(self.name, SOURCE)
        self.calls = []

    def write(self, name, source, load=True):
        """Make a module that can be imported, and import it."""
        self.folder.joinpath(name + ".py").write_text(source)
        importlib.invalidate_caches()
        if load:
            self.monkeypatch.delitem(sys.modules, name, raising=False)
            return importlib.import_module(name)
        self.monkeypatch.setitem(sys.modules, name, None)  # so that it is forgotten again afterwards
        del sys.modules[name]
        return None

    def ours(self, label, aside=False):
        def function(stock, *args, **kwargs):
            """Do the same, and say so."""
            self.calls.append(label)
            return stock(*args, **kwargs) if aside else stock.__wrapped__(*args, **kwargs)

        function.__name__ = label
        return function

    def entry(self, attribute="double", *places, function=None, name=None, aside=False, sources=None, **options):
        """A replacement of an attribute of the module."""
        places = places or (f"{self.name}:{attribute}",)
        if sources is None:
            holder = self.module
            for part in attribute.split(".")[:-1]:
                holder = getattr(holder, part)
            sources = (digest(vars(holder)[attribute.rpartition(".")[2]]),)
        name = name or attribute
        return Replacement(name, places, function or self.ours(name, aside), sources, **options)

    def use(self, *entries):
        """Let accelerate() know these."""
        table, patches = Table(entries), Patches(entries)
        self.monkeypatch.setattr(acceleration, "table", lambda: table)
        self.monkeypatch.setattr(acceleration, "_shared_patches", lambda: patches)
        return entries[0] if entries else None

    def snapshot(self):
        return {**vars(self.module), **{"Box." + key: value for key, value in vars(self.module.Box).items()}}

    def restored(self, before):
        now = self.snapshot()
        return now.keys() == before.keys() and all(now[key] is before[key] for key in now)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    made = World(tmp_path, monkeypatch)
    made.use()
    yield made
    uninstall()
    assert acceleration._shared_patches()._count == 0
    assert acceleration._shared_patches()._finder not in sys.meta_path


# ---- scopes


def test_replaces_inside_of_the_block_only(world):
    entry = world.use(world.entry())
    before = world.snapshot()
    assert world.module.double(2) == 4 and entry.hits == 0
    with accelerate() as entered:
        assert isinstance(entered, accelerate)
        assert world.module.double(2) == 4
        assert world.module.outer(2) == 5
        assert world.module.double is not before["double"]
    assert world.module.double(2) == 4
    assert (entry.hits, entry.asides, world.calls) == (2, 0, ["double"] * 2)
    assert world.restored(before)


def test_innermost_scope_decides(world):
    double, get = world.use(world.entry("double"), world.entry("Box.get")), acceleration.table()["Box.get"]
    with accelerate():
        with accelerate(only=["Box.get"]):
            world.module.double(1), world.module.Box(1).get()
            assert (double.hits, get.hits) == (0, 1)
            with accelerate(only=[]):
                world.module.double(1), world.module.Box(1).get()
                assert (double.hits, get.hits) == (0, 1)
        world.module.double(1)
        assert (double.hits, get.hits) == (1, 1)


def test_decorates_functions_and_coroutines(world):
    entry = world.use(world.entry())

    @accelerate()
    def plain(x, *, more=0):
        """Text."""
        return world.module.double(x) + more

    @accelerate(only=["double"])
    async def waits(x):
        await asyncio.sleep(0)
        return world.module.double(x)

    assert (plain.__name__, plain.__doc__) == ("plain", "Text.")
    assert inspect.iscoroutinefunction(waits)
    assert plain(2, more=1) == 5 and entry.hits == 1
    assert asyncio.run(waits(2)) == 4 and entry.hits == 2
    assert world.module.double(2) == 4 and entry.hits == 2


def test_refuses_generators(world):
    def steps():
        yield 1

    async def async_steps():
        yield 1

    for function in (steps, async_steps):
        with pytest.raises(TypeError, match="steps; put `with` inside it"):
            accelerate()(function)


def test_exception_inside_restores_all(world):
    world.use(world.entry(), world.entry("Box.half"), world.entry("Box.plain"), world.entry("Box.make"))
    before = world.snapshot()
    with pytest.raises(ZeroDivisionError):
        with accelerate(), accelerate():
            1 / 0  # noqa: B018
    assert world.restored(before)

    @accelerate()
    def fails():
        return world.module.fail(1)

    with pytest.raises(ValueError, match="no 1"):
        fails()
    assert world.restored(before)


def test_other_threads_are_not_affected(world):
    entry = world.use(world.entry())

    def run():
        return [world.module.double(2), entry.hits]

    with accelerate():
        assert in_thread(run) == [4, 0]
        assert run() == [4, 1]


def in_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_install_reaches_all_threads(world):
    entry = world.use(world.entry())
    before = world.snapshot()
    install()
    world.module.double(1)
    in_thread(lambda: world.module.double(1))
    assert entry.hits == 2
    with accelerate(only=[]):
        world.module.double(1)
    assert entry.hits == 2
    uninstall()
    world.module.double(1)
    assert entry.hits == 2 and world.restored(before)


def test_install_and_uninstall_again(world):
    entry = world.use(world.entry())
    before = world.snapshot()
    uninstall()
    install()
    install(only=[])
    world.module.double(1)
    assert entry.hits == 0
    install()
    world.module.double(1)
    assert entry.hits == 1
    with accelerate():
        uninstall()
        world.module.double(1)
        assert entry.hits == 2
    assert world.restored(before)
    uninstall()
    assert world.restored(before)


def test_many_threads_install_at_once(world):
    world.use(world.entry())
    before = world.snapshot()
    barrier = threading.Barrier(8)

    def run():
        barrier.wait()
        for _ in range(50):
            install()
            with accelerate():
                world.module.double(1)
            uninstall()

    threads = [threading.Thread(target=run) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert world.restored(before) and acceleration._shared_patches()._count == 0


def test_one_object_entered_again_and_in_many_tasks(world):
    entry = world.use(world.entry())
    before = world.snapshot()
    shared = accelerate()
    with shared, shared:
        world.module.double(1)
    with shared:
        world.module.double(1)
    assert entry.hits == 2

    async def task(inside):
        if inside:
            with shared:
                await asyncio.sleep(0.001)
                hits = entry.hits
                world.module.double(1)
                assert entry.hits == hits + 1
                await asyncio.sleep(0.001)
        else:
            for _ in range(3):
                hits = entry.hits
                world.module.double(1)
                assert entry.hits == hits
                await asyncio.sleep(0.001)

    async def all_tasks():
        await asyncio.gather(*(task(index % 2) for index in range(10)))

    asyncio.run(all_tasks())
    assert world.restored(before)

    def run():
        with shared:
            world.module.double(1)

    threads = [threading.Thread(target=run) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert world.restored(before)


# ---- the table


def test_entries_are_switched_one_by_one(world):
    double = world.use(world.entry(), world.entry("Box.get", enabled=False))
    get = acceleration.table()["Box.get"]
    with accelerate():
        world.module.double(1), world.module.Box(1).get()
        assert (double.hits, get.hits) == (1, 0)
        double.enabled, get.enabled = False, True
        world.module.double(1), world.module.Box(1).get()
        assert (double.hits, get.hits) == (1, 1)
    text = repr(acceleration.table())
    assert text.splitlines()[0].split() == ["name", "state", "hits", "asides", "what", "it", "does"]
    assert text.splitlines()[1].split() == ["double", "off", "1", "0", "Do", "the", "same,", "and", "say", "so"]
    assert repr(get) == "<replacement Box.get: on, 1 hits, 0 asides>"


def test_stepping_aside_is_counted(world):
    entry = world.use(world.entry(aside=True))
    with accelerate():
        assert world.module.double(1) == 2
    assert (entry.hits, entry.asides, world.calls) == (0, 1, ["double"])


def test_only_takes_names_that_exist(world):
    world.use(world.entry())
    with pytest.raises(KeyError, match="no replacement is called nothing; there are: double"):
        accelerate(only=["double", "nothing"])
    with pytest.raises(TypeError, match="not the string 'double'"):
        accelerate(only="double")
    with pytest.raises(KeyError):
        install(only=["nothing"])


def test_names_are_unique(world):
    with pytest.raises(ValueError, match="same name"):
        Table((world.entry(), world.entry()))


def test_real_table():
    table = acceleration.table()
    assert table is acceleration.table()
    for name, entry in table.items():
        assert entry.name == name and entry.places and entry.summary and entry.sources
        assert all(len(source) == 16 for source in entry.sources), name
    places = collections.Counter(place for entry in table.values() for place in entry.places)
    assert all(place.count(":") == 1 for place in places)


def test_real_entries_fit_what_is_installed():
    """With the releases that the tests are made for, each is put in at each of its places and taken out again."""
    pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    table = acceleration.table()
    places = {place for entry in table.values() for place in entry.places}
    for place in places:
        importlib.import_module(place.partition(":")[0])
    before = {place: find(place)[2] for place in places}
    with accelerate():
        assert {name: entry.unavailable for name, entry in table.items() if entry.unavailable} == {}
        assert [place for place in places if find(place)[2] is before[place]] == []
    assert all(find(place)[2] is before[place] for place in places)


# ---- what is unknown


def messages(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "fastexport.acceleration"]


def test_unknown_source_text_steps_aside_with_one_line(world, caplog):
    entry = world.use(world.entry(sources=("0" * 16,)))
    before = world.snapshot()
    for _ in range(3):
        with accelerate():
            assert world.restored(before)
            assert world.module.double(1) == 2
    place = f"{world.name}:double"
    assert messages(caplog) == [f"double steps aside: {place} is not the function it was made for (torch 2.13)"]
    assert entry.unavailable and entry.hits == 0 and "n/a" in repr(acceleration.table())


@pytest.mark.parametrize("place", ["nothing", "Box.nothing", "Nothing.get", "Box.__len__", "Box.__hash__"])
def test_missing_attribute_steps_aside_with_one_line(world, caplog, place):
    world.use(world.entry("double", f"{world.name}:{place}"), world.entry("Box.get"))
    for _ in range(2):
        with accelerate():
            assert world.module.Box(1).get() == 1
    assert messages(caplog) == [f"double steps aside: {world.name}:{place} is not there"]
    assert acceleration.table()["Box.get"].hits == 2


def test_functions_without_source_step_aside(world, caplog):
    world.module.double = len
    world.use(world.entry(sources=("0" * 16,)))
    with accelerate():
        assert world.module.double is len
    assert len(messages(caplog)) == 1


def test_what_a_user_put_there_before_stays(world):
    entry = world.use(world.entry())
    stock = world.module.double

    @functools.wraps(stock)
    def patched(x):  # its source text is stock's to inspect.getsource
        return stock(x) * 10

    world.module.double = patched
    with accelerate():
        assert world.module.double is patched and world.module.double(1) == 20
    assert entry.unavailable and entry.hits == 0
    world.module.double = stock
    with accelerate():
        assert world.module.double(1) == 2
    assert entry.unavailable is None and entry.hits == 1


def test_callable_object_in_the_place_steps_aside(world):
    world.use(world.entry())
    stock = world.module.double

    class Spy:
        __wrapped__ = stock

        def __call__(self, x):
            return "spied"

    world.module.double = Spy()
    with accelerate():
        assert world.module.double(1) == "spied"


def test_what_a_user_puts_over_ours_stays(world, caplog):
    entry = world.use(world.entry())
    before = world.snapshot()
    with accelerate():
        ours = world.module.double

        @functools.wraps(ours)
        def patched(x):
            return ours(x) * 10

        world.module.double = patched
        assert world.module.double(1) == 20 and entry.hits == 1
    assert world.module.double is patched and world.module.double(1) == 20 and entry.hits == 1
    assert messages(caplog) == [f"{world.name}.double was replaced by something else and stays"]
    with accelerate():
        assert world.module.double is patched
    # the user takes the patch off again, with what was there when it was put on
    world.module.double = ours
    assert world.module.double(1) == 2 and entry.hits == 1
    with accelerate():
        assert world.module.double(1) == 2 and entry.hits == 2
    assert world.restored(before)


def test_what_a_user_takes_away_stays_away(world):
    world.use(world.entry())
    with accelerate():
        del world.module.double
    assert not hasattr(world.module, "double")


# ---- places


def test_properties_static_methods_class_methods(world):
    entries = [world.entry(f"Box.{name}") for name in ("half", "plain", "make", "get", "__init__")]
    world.use(*entries)
    before = world.snapshot()
    Box = world.module.Box

    class Sub(Box):
        pass

    with accelerate():
        for kind in (Box, Sub):
            box = kind.make(6)
            assert type(box) is kind
            assert (box.half, box.plain(3), kind.plain(3), box.get()) == (3, 3, 3, 6)
            box.half = 5
            assert box.x == 10
        assert type(vars(Box)["half"]) is property and Box.half.fset is before["Box.half"].fset
        assert type(vars(Box)["plain"]) is staticmethod and type(vars(Box)["make"]) is classmethod
    assert world.restored(before)
    assert [entry.hits for entry in entries] == [2, 4, 2, 2, 2]
    assert world.calls.count("Box.make") == 2


def test_override_in_a_subclass_is_called(world):
    entry = world.use(world.entry("Box.get"))

    class Mine(world.module.Box):
        def get(self):
            return "mine"

    with accelerate():
        assert Mine(1).get() == "mine" and entry.hits == 0


def test_one_function_in_many_places_stays_one(world):
    copy_name = world.name + "_copy"
    copied = world.write(copy_name, f"from {world.name} import double\n")
    world.use(world.entry("double", f"{world.name}:double", f"{copy_name}:double"))
    stock = world.module.double
    with accelerate():
        assert copied.double is world.module.double is not stock
    assert copied.double is world.module.double is stock


def test_two_entries_in_one_place(world):
    first = world.use(world.entry(name="first"), world.entry(name="second"))
    second = acceleration.table()["second"]
    before = world.snapshot()
    with accelerate():
        assert world.module.double(1) == 2
        assert (first.hits, second.hits) == (1, 1)
        second.enabled = False
        assert world.module.double(1) == 2
        assert (first.hits, second.hits) == (2, 1)
    assert world.restored(before)


def test_looks_like_the_function_it_stands_for(world):
    world.use(world.entry())
    stock = world.module.double
    with accelerate():
        ours = world.module.double
        assert (ours.__name__, ours.__doc__, ours.__module__) == (stock.__name__, stock.__doc__, stock.__module__)
        assert inspect.signature(ours) == inspect.signature(stock)
        assert inspect.getsource(ours) == inspect.getsource(stock)
        assert pickle.loads(pickle.dumps(ours)) is ours
        assert copy.deepcopy(ours) is ours
        data = pickle.dumps(ours)
    assert pickle.loads(data) is stock


# ---- modules imported inside the block


def late(world, source=SOURCE, attribute="double"):
    """A module that can be imported but isn't, and the entry that waits for it."""
    name = f"late_{next(_numbers)}"
    world.write(name, source, load=False)
    return name, world.entry(attribute, f"{name}:{attribute}", name="late")


def test_modules_imported_inside_get_theirs(world):
    name, waits = late(world)
    world.use(waits)
    with accelerate():
        module = importlib.import_module(name)
        assert module.double(1) == 2 and waits.hits == 1
        spec = module.__spec__
        assert type(spec.loader) is type(world.module.__spec__.loader) and module.__loader__ is spec.loader
        assert pkgutil.get_data(name, name + ".py") == SOURCE.encode()
        assert pickle.loads(pickle.dumps(module.Box(2))).x == 2
        assert copy.copy(spec).loader is spec.loader
        assert inspect.getsource(module.outer).startswith("def outer")
    assert module.double(1) == 2 and waits.hits == 1
    assert "accelerated" not in module.double.__code__.co_name
    with accelerate():
        assert module.double(1) == 2 and waits.hits == 2


def test_finding_a_module_does_not_disturb_it(world):
    name, waits = late(world)
    world.use(waits)
    with accelerate():
        spec = importlib.util.find_spec(name)
        assert spec.origin.endswith(name + ".py") and name not in sys.modules
        assert spec.loader.get_source(name) == SOURCE
        assert spec.loader.is_package(name) is False
        again = copy.copy(pickle.loads(pickle.dumps(spec)))
        assert type(again.loader) is type(world.module.__spec__.loader)
        module = importlib.util.module_from_spec(spec)  # a second copy that never is in sys.modules
        spec.loader.exec_module(module)
        assert module.double(1) == 2 and waits.hits == 0 and name not in sys.modules
        assert importlib.import_module(name).double(1) == 2 and waits.hits == 1


def test_reload_inside_the_block(world):
    name, waits = late(world)
    world.use(waits)
    with accelerate():
        module = importlib.import_module(name)
        assert importlib.reload(module) is module
        assert module.double(1) == 2
        assert type(module.__spec__.loader) is type(world.module.__spec__.loader)
    assert module.double(1) == 2 and "accelerated" not in module.double.__code__.co_name
    with accelerate():
        hits = waits.hits
        assert module.double(1) == 2 and waits.hits == hits + 1


def test_import_that_fails_can_be_tried_again(world):
    name, waits = late(world, SOURCE + "\nimport builtins\nif not hasattr(builtins, 'ready'): raise OSError('no')\n")
    world.use(waits)
    with accelerate():
        with pytest.raises(OSError, match="no"):
            importlib.import_module(name)
        assert name not in sys.modules
        world.monkeypatch.setattr("builtins.ready", True, raising=False)
        assert importlib.import_module(name).double(1) == 2 and waits.hits == 1


def test_no_such_module(world):
    world.use(world.entry("double", "no_such_module_anywhere:double"))
    with accelerate():
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("no_such_module_anywhere")


def test_modules_that_copy_ours_get_torchs_back(world):
    copies, waits = late(world, f"from {world.name} import double, Box\n")
    more = f"late_{next(_numbers)}"
    world.write(more, f"from {world.name} import double as twice\n", load=False)
    entry = world.use(world.entry("double", f"{world.name}:double", f"{copies}:double"))
    stock = world.module.double
    with accelerate():
        first, second = importlib.import_module(copies), importlib.import_module(more)
        assert first.double is second.twice is world.module.double
        assert first.double(1) == second.twice(1) == 2
        assert entry.hits == 2
    assert first.double is second.twice is world.module.double is stock


def test_import_in_another_thread(world):
    name, waits = late(world)
    world.use(waits)
    with accelerate():
        module = in_thread(lambda: importlib.import_module(name))
        assert module.double(1) == 2 and waits.hits == 1


# ---- putting in as a whole


def test_failure_in_the_middle_undoes_all(world, monkeypatch):
    world.use(world.entry(), world.entry("Box.get"), world.entry("outer"))
    before = world.snapshot()
    from fastexport.acceleration import _patches

    stand_in = _patches.stand_in

    def fails(entry, held):
        if entry.name == "outer":
            raise MemoryError("no more")
        return stand_in(entry, held)

    monkeypatch.setattr(_patches, "stand_in", fails)
    with pytest.raises(MemoryError):
        with accelerate():
            pass
    assert world.restored(before) and acceleration._shared_patches()._count == 0
    with pytest.raises(MemoryError):
        install()
    assert world.restored(before)
    monkeypatch.setattr(_patches, "stand_in", stand_in)
    with accelerate():
        assert world.module.double(1) == 2
    assert world.calls == ["double"]


# ---- verify


def test_verify_compares_results(world):
    entry = world.use(world.entry(function=lambda stock, x: stock.__wrapped__(x) + (x == 3)))
    with accelerate(verify=True):
        assert world.module.double(2) == 4
        with pytest.raises(AccelerationError, match="<lambda>: result: torch has 6, fastexport 7"):
            world.module.double(3)
    assert world.module.double(3) == 6
    assert entry.hits == 2


def test_verify_compares_exceptions(world):
    def ours(stock, x):
        raise {1: ValueError("no 1"), 2: ValueError("No 2"), 3: TypeError("no 3")}[x]

    world.use(world.entry("fail", function=ours))
    with accelerate(verify=True):
        with pytest.raises(ValueError, match="no 1"):
            world.module.fail(1)
        for x in (2, 3):
            with pytest.raises(AccelerationError, match="ours: torch gives ValueError"):
                world.module.fail(x)


def test_verify_uses_torchs_alone_below(world):
    double = world.use(world.entry(), world.entry("outer", function=lambda stock, x: stock.__wrapped__(x)))
    with accelerate(verify=True):
        assert world.module.outer(1) == 3
    assert double.hits == 1, "ours may use what is replaced, torch's not"


def test_verify_compares_random_states_and_warnings(world):
    random_calls = iter([1, 2])

    def ours(stock, x):
        if x == "warns":
            warnings.warn("only ours", UserWarning, stacklevel=1)
        elif x == "draws":
            for _ in range(next(random_calls)):
                random.random()
        return x + x

    def stock_double(x):
        if x == "draws":
            random.random()
        return x + x

    from fastexport.acceleration._verify import verify_result

    def both(x):
        return verify_result(functools.partial(ours, None), stock_double, (x,), {})

    with pytest.raises(AccelerationError, match="warnings"):
        both("warns")
    random.seed(0)
    assert both("draws") == "drawsdraws"
    state = random.getstate()
    random.seed(0)
    random.random()
    assert random.getstate() == state
    with pytest.raises(AccelerationError, match="random states"):
        both("draws")


def test_verify_gives_warnings_once(world):
    def warns(x):
        warnings.warn(f"about {x}", UserWarning, stacklevel=1)

    from fastexport.acceleration._verify import verify_result

    with pytest.warns(UserWarning) as given:
        verify_result(warns, warns, (1,), {})
    assert [str(item.message) for item in given] == ["about 1"]


def test_an_entrys_own_verify(world):
    world.use(world.entry(verify=lambda ours, stock, args, kwargs: ("verified", ours(*args), stock(*args))))
    with accelerate(verify=True):
        assert world.module.double(1) == ("verified", 2, 2)


# ---- without torch


def test_importing_imports_no_torch():
    run_python("""
        import sys
        import fastexport, fastexport.acceleration
        with __import__("contextlib").suppress(KeyError):
            fastexport.accelerate()
        assert not any(name.partition(".")[0] in ("torch", "torchao", "numpy") for name in sys.modules)
    """)


def test_works_without_torchao():
    run_python("""
        import sys

        class Hidden:
            def find_spec(self, name, path, target=None):
                if name.partition(".")[0] == "torchao":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Hidden())
        import torch, fastexport

        def f(x):
            return x.relu()

        with fastexport.accelerate():
            gm = torch.fx.symbolic_trace(f)
            gm.graph.eliminate_dead_code()
            gm.recompile()
            try:
                import torchao
            except ModuleNotFoundError:
                pass
            else:
                raise AssertionError
        assert torch.equal(gm(torch.ones(2)), torch.ones(2))
        assert len(sys.meta_path) and not any("fastexport" in type(f).__module__ for f in sys.meta_path)
    """)


def test_errors_are_ours():
    assert issubclass(AccelerationError, fastexport.FastExportError)
    assert {"accelerate", "install", "uninstall", "AccelerationError"} <= set(fastexport.__all__)
    assert logging.getLogger("fastexport.acceleration").parent is logging.getLogger("fastexport")


def test_a_scope_left_twice_is_an_error_and_changes_nothing():
    scope = fastexport.accelerate()
    with pytest.raises(RuntimeError, match="more often"):
        scope.__exit__(None, None, None)
    import torch

    stock = torch.fx.Graph.lint
    with scope:
        assert torch.fx.Graph.lint is not stock
    with pytest.raises(RuntimeError, match="more often"):
        scope.__exit__(None, None, None)
    assert torch.fx.Graph.lint is stock
