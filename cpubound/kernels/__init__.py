"""Run one native kernel on N pinned threads and measure it."""
