"""Thin face of csrc: the kernel table, memory of a page kind, a team of timed threads."""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int64_t, uint64_t

import os


cdef extern from "cb_cpu.h" nogil:
    ctypedef enum cb_isa:
        CB_ISA_COUNT
    const char *cb_isa_name(cb_isa isa)
    int cb_isa_available(cb_isa isa)


cdef extern from "cb_kernels.h" nogil:
    ctypedef struct cb_args:
        void *array[3]
        double scalar
        size_t columns
    ctypedef void (*cb_fill_fn)(const cb_args *, size_t, size_t)
    ctypedef void (*cb_quantize_fn)(const float *, void *, size_t)
    ctypedef struct cb_traffic:
        double read_bytes
        double write_bytes
        double write_allocate_bytes
        double flops
    ctypedef struct cb_format:
        size_t block_elements
        size_t block_bytes
        size_t activation_elements
        size_t activation_bytes
        cb_quantize_fn quantize
    ctypedef struct cb_kernel:
        const char *name
        const char *variant
        cb_isa isa
        const char *dtype
        int arrays
        size_t unit_bytes
        cb_traffic traffic
        cb_fill_fn fill
        const cb_format *format
    size_t cb_kernel_count()
    const cb_kernel *cb_kernel_at(size_t index)
    size_t cb_array_bytes(const cb_kernel *kernel, int array, size_t units, size_t columns)


cdef extern from "cb_team.h" nogil:
    ctypedef struct cb_team:
        pass
    ctypedef struct cb_run:
        int64_t start_ns
        int64_t end_ns
        uint64_t checksum
    enum:
        CB_OK
    ctypedef struct cb_clock:
        int64_t step_ns
        double read_ns
    cb_clock cb_measure_clock()
    cb_team *cb_team_create(int threads)
    void cb_team_destroy(cb_team *team)
    void cb_team_stop(cb_team *team)
    bint cb_team_stopped(cb_team *team)
    int cb_team_run(cb_team *team, const cb_kernel *kernel, const cb_args *args, size_t begin,
                    size_t end, size_t passes, cb_run *run)


cdef extern from "cb_memory.h" nogil:
    ctypedef enum cb_pages:
        CB_PAGES_ANY
        CB_PAGES_4K
        CB_PAGES_HUGE
        CB_PAGES_FILE
    ctypedef struct cb_memory:
        void *data
        size_t bytes
    int cb_memory_map(cb_memory *memory, size_t n_bytes, cb_pages pages, int file)
    int cb_memory_flush(cb_memory *memory)
    void cb_memory_unmap(cb_memory *memory)


PAGES_ANY, PAGES_4K, PAGES_HUGE, PAGES_FILE = (
    CB_PAGES_ANY, CB_PAGES_4K, CB_PAGES_HUGE, CB_PAGES_FILE)


def isas():
    """Return (name, available) of every instruction set, weakest first."""
    return tuple(
        (cb_isa_name(<cb_isa>isa).decode(), bool(cb_isa_available(<cb_isa>isa)))
        for isa in range(CB_ISA_COUNT))


cdef const cb_kernel *kernel_at(size_t index) except NULL:
    cdef const cb_kernel *kernel = cb_kernel_at(index)
    if kernel is NULL:
        raise IndexError(f"no kernel {index}")
    return kernel


def kernel_table():
    """Return one dict per kernel, in table order; the position is the kernel's index."""
    rows = []
    cdef const cb_kernel *k
    for index in range(cb_kernel_count()):
        k = kernel_at(index)
        rows.append({
            "name": k.name.decode(),
            "isa": cb_isa_name(k.isa).decode(),
            "variant": k.variant.decode(),
            "dtype": k.dtype.decode(),
            "read_bytes": k.traffic.read_bytes,
            "write_bytes": k.traffic.write_bytes,
            "write_allocate_bytes": k.traffic.write_allocate_bytes,
            "flops": k.traffic.flops,
            "arrays": k.arrays,
            "unit_bytes": k.unit_bytes,
            "block_elements": 0 if k.format is NULL else k.format.block_elements,
            "activation_elements": 0 if k.format is NULL else k.format.activation_elements,
        })
    return rows


def array_bytes(size_t index, int array, size_t units, size_t columns=0):
    """Return the bytes of one array that a run over ``units`` units touches."""
    return cb_array_bytes(kernel_at(index), array, units, columns)


def measure_clock():
    """Return (smallest step seen, cost of a reading) of the clock of runs, in nanoseconds."""
    cdef cb_clock clock
    with nogil:
        clock = cb_measure_clock()
    return clock.step_ns, clock.read_ns


cdef class Memory:
    """Memory of one page kind, writable through the buffer protocol, not yet touched."""

    cdef cb_memory memory

    def __cinit__(self, size_t n_bytes, cb_pages pages, int file=-1):
        if n_bytes == 0:
            raise ValueError("memory of 0 bytes")
        cdef int error
        with nogil:
            error = cb_memory_map(&self.memory, n_bytes, pages, file)
        if error:
            raise OSError(error, os.strerror(error))

    def __dealloc__(self):
        cb_memory_unmap(&self.memory)

    def __len__(self):
        return self.memory.bytes

    @property
    def address(self):
        """Where it starts in this process."""
        return <size_t>self.memory.data

    def flush(self):
        """Write a file mapping back to its file and wait for it."""
        cdef int error
        with nogil:
            error = cb_memory_flush(&self.memory)
        if error:
            raise OSError(error, os.strerror(error))

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.memory.data, self.memory.bytes, 0, flags)


cdef class Operands:
    """The arrays of one kernel, kept alive and checked against the units they must hold.

    ``arrays`` are writable contiguous buffers, in the kernel's order.
    """

    cdef cb_args args
    cdef Py_buffer views[3]
    cdef int held
    cdef size_t index
    cdef size_t units

    def __cinit__(self, size_t index, arrays, size_t units, size_t columns=0, double scalar=3.0):
        cdef const cb_kernel *kernel = kernel_at(index)
        cdef size_t needed
        self.index, self.units = index, units
        self.args.columns, self.args.scalar = columns, scalar
        if len(arrays) != kernel.arrays:
            raise ValueError(f"{kernel.name.decode()} takes {kernel.arrays} arrays, not {len(arrays)}")
        if kernel.format is not NULL:
            for block in (kernel.format.block_elements, kernel.format.activation_elements):
                if columns == 0 or columns % block:
                    raise ValueError(f"columns ({columns}) is not a multiple of the block ({block})")
        for array in arrays:
            PyObject_GetBuffer(array, &self.views[self.held], PyBUF_SIMPLE | PyBUF_WRITABLE)
            self.args.array[self.held] = self.views[self.held].buf
            self.held += 1
            needed = cb_array_bytes(kernel, self.held - 1, units, columns)
            if <size_t>self.views[self.held - 1].len < needed:
                raise ValueError(
                    f"array {self.held - 1} has {self.views[self.held - 1].len} bytes, needs {needed}")

    def __dealloc__(self):
        for i in range(self.held):
            PyBuffer_Release(&self.views[i])

    def check_units(self, size_t begin, size_t end):
        if begin > end or end > self.units:
            raise ValueError(f"units {begin} … {end} are outside 0 … {self.units}")

    def fill(self, size_t begin, size_t end):
        """Write what units ``begin`` … ``end`` - 1 read: the calling thread touches them."""
        self.check_units(begin, end)
        cdef const cb_kernel *kernel = kernel_at(self.index)
        with nogil:
            kernel.fill(&self.args, begin, end)

    def quantize(self, float[::1] x not None):
        """Store the activations ``x`` (one float32 per column) as the kernel takes them."""
        cdef const cb_kernel *kernel = kernel_at(self.index)
        if kernel.format is NULL or <size_t>x.shape[0] != self.args.columns:
            raise ValueError(f"{kernel.name.decode()} does not take {x.shape[0]} activations")
        with nogil:
            kernel.format.quantize(&x[0], self.args.array[1], self.args.columns)


cdef class Team:
    """Threads that run timed passes together; each calls ``run`` from its own thread."""

    cdef cb_team *team

    def __cinit__(self, int threads):
        if threads < 1:
            raise ValueError(f"a team of {threads} threads")
        self.team = cb_team_create(threads)
        if self.team is NULL:
            raise MemoryError

    def __dealloc__(self):
        cb_team_destroy(self.team)

    def stop(self):
        """End every wait and run of the team, now and from now on."""
        cb_team_stop(self.team)

    @property
    def stopped(self):
        return cb_team_stopped(self.team)

    def run(self, Operands operands not None, size_t begin, size_t end, size_t passes):
        """Wait for the team, run ``passes`` passes over the units, wait again.

        Returns (start_ns, end_ns, checksum) on a clock that all threads share, or None if
        the team was stopped. The GIL is released for the whole call.
        """
        operands.check_units(begin, end)
        cdef const cb_kernel *kernel = kernel_at(operands.index)
        if not cb_isa_available(kernel.isa):
            raise ValueError(f"{cb_isa_name(kernel.isa).decode()} cannot run on this CPU")
        cdef cb_run run
        cdef int status
        with nogil:
            status = cb_team_run(self.team, kernel, &operands.args, begin, end, passes, &run)
        if status != CB_OK:
            return None
        return run.start_ns, run.end_ns, run.checksum
