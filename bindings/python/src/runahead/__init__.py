"""Disclose what will be read, so that it is prefetched and kept.

A program that knows what it will read says so, as early and as completely as it can, in the
order in which it will read (R. H. Patterson III, Informed Prefetching and Caching, 1997).
Hints are disclosure, not commands: nothing depends on them, and wrong ones cost little.

The library ``librunahead_hint.so`` is loaded from the path in ``RUNAHEAD_HINT_LIBRARY`` or
where the dynamic linker looks. Where it is absent, hints are accepted and forgotten.
"""

import ctypes
import os

__all__ = [
    "available",
    "cancel",
    "consumed",
    "hint",
    "hint_across",
    "hint_array",
    "array_segments",
    "outstanding",
    "pread",
]


class _Segment(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _FdSegment(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


def _load():
    try:
        library = ctypes.CDLL(
            os.environ.get("RUNAHEAD_HINT_LIBRARY") or "librunahead_hint.so", use_errno=True
        )
        size, fd = ctypes.c_size_t, ctypes.c_int
        library.runahead_hint_path.argtypes = [ctypes.c_char_p, ctypes.c_void_p, size]
        library.runahead_hint_fd.argtypes = [fd, ctypes.c_void_p, size]
        library.runahead_hint_fds.argtypes = [ctypes.c_void_p, size]
        library.runahead_hint_cancel.argtypes = [size]
        library.runahead_hint_outstanding.restype = size
        library.runahead_hint_consumed.argtypes = [fd, ctypes.c_uint64, ctypes.c_uint64]
        library.runahead_hint_consumed.restype = None
        library.runahead_pread.argtypes = [fd, ctypes.c_void_p, size, ctypes.c_int64]
        library.runahead_pread.restype = ctypes.c_ssize_t
        return library
    except (OSError, AttributeError):
        return None


_library = _load()


def _check(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _fileno(file):
    return file if isinstance(file, int) else file.fileno()


def _range(segment):
    # ctypes would cut off what does not fit.
    offset, length = segment
    if min(offset, length) < 0 or max(offset, length) >= 1 << 64:
        raise ValueError("offset and length of a segment are 0 to 2**64 - 1")
    return offset, length


def available():
    """Whether a manager takes hints."""
    return bool(_library and _library.runahead_hint_available())


def hint(file, segments=((0, 0),)):
    """Says that these (offset, length) segments of a file will be read next, in this order.

    ``file`` is a path, which need not be open, an open file or a descriptor. Length 0 is to
    the end of the file; without segments it is the whole file. ``OSError``: ENOSPC where
    4,194,304 segments are outstanding, EBADF for what has no page cache.
    """
    ranges = [_range(segment) for segment in segments]
    if _library is None or not ranges:
        return
    array = (_Segment * len(ranges))(*ranges)
    if isinstance(file, (str, bytes, os.PathLike)):
        _check(_library.runahead_hint_path(os.fsencode(file), array, len(ranges)))
    else:
        _check(_library.runahead_hint_fd(_fileno(file), array, len(ranges)))


def hint_across(segments):
    """The same for (file, offset, length) segments of several open files, in reading order."""
    ranges = [(_fileno(file), *_range((offset, length))) for file, offset, length in segments]
    if _library is not None and ranges:
        _check(_library.runahead_hint_fds((_FdSegment * len(ranges))(*ranges), len(ranges)))


def cancel(count=1):
    """The first ``count`` outstanding segments will not be read."""
    if count < 0:
        raise ValueError("count is not negative")
    if _library is not None:
        _check(_library.runahead_hint_cancel(min(count, (1 << 64) - 1)))


def outstanding():
    """Segments that were hinted and not read yet."""
    return _library.runahead_hint_outstanding() if _library is not None else 0


def pread(file, count, offset):
    """As ``os.pread``, and tells the manager how far the program is."""
    # What makes no sense is refused as by os.pread: ctypes would make something of it.
    if _library is None or count < 0 or not 0 <= offset < 1 << 63:
        return os.pread(_fileno(file), count, offset)
    buffer = ctypes.create_string_buffer(max(count, 1))
    read = _library.runahead_pread(_fileno(file), buffer, count, offset)
    if read < 0:
        _check(read)
    return buffer.raw[:read]


def consumed(file, offset, length):
    """Tells the manager that bytes were read otherwise: through a mapping, or by a library."""
    offset, length = _range((offset, length))
    if _library is not None:
        _library.runahead_hint_consumed(_fileno(file), offset, length)


def array_segments(shape, itemsize, index, offset=0):
    """The (offset, length) segments of a file that ``array[index]`` reads, in its order.

    The array has ``shape`` and lies in C order from byte ``offset`` of the file, as NumPy's
    ``memmap`` and ``.npy`` files do. ``index`` is a slice or an integer, or a tuple of them;
    steps are positive. Rows that touch are joined.
    """
    index = index if isinstance(index, tuple) else (index,)
    if len(index) > len(shape):
        raise IndexError("more indices than dimensions")
    ranges = []
    for axis, size in enumerate(shape):
        one = index[axis] if axis < len(index) else slice(None)
        if isinstance(one, slice):
            one = range(*one.indices(size))
            if one.step < 0:
                raise ValueError("steps are positive")
        else:
            if not -size <= one < size:
                raise IndexError("index out of range")
            one = range(one % size, one % size + 1)
        ranges.append(one)
    # From the last dimension on, what is taken whole is one run of bytes.
    run, last = itemsize, len(shape)
    while last > 0 and len(ranges[last - 1]) == shape[last - 1]:
        last -= 1
        run *= shape[last]
    stride = itemsize
    strides = []
    for size in reversed(shape):
        strides.insert(0, stride)
        stride *= size
    starts = [offset]
    # So are neighbours along the dimension before them.
    if last > 0 and ranges[last - 1].step == 1:
        last -= 1
        run *= len(ranges[last])
        starts = [offset + ranges[last].start * strides[last]]
    for axis in range(last):
        starts = [start + i * strides[axis] for start in starts for i in ranges[axis]]
    segments = []
    for start in starts:
        if segments and segments[-1][0] + segments[-1][1] == start:
            segments[-1] = (segments[-1][0], segments[-1][1] + run)
        elif run:
            segments.append((start, run))
    return segments


def hint_array(file, shape, itemsize, index, offset=0):
    """Says that ``array[index]`` will be read next: see ``array_segments``."""
    hint(file, array_segments(shape, itemsize, index, offset))
