"""The agreement experiment pairs both engines and takes its ratios within a pair."""

from __future__ import annotations

from calibrate.agreement import Cell, agreement_table, run_pairs
from cpubound.engine.values import EngineIdentity, Observation, RunSettings
from cpubound.setting import Setting


class Engine:
    def __init__(self, name: str, seconds: list[float], log: list[str]) -> None:
        self.name, self.seconds, self.log = name, seconds, log

    def identity(self) -> EngineIdentity:
        return EngineIdentity(name=self.name, version="1", build="abc")

    def run(self, settings: RunSettings) -> Observation:
        self.log.append(self.name)
        return Observation(settings=settings, engine=self.identity(), samples_s=tuple(self.seconds))

    def close_model(self, model_path: str) -> None: ...

    def close(self) -> None: ...


def test_each_pair_holds_one_run_of_each_and_rates_count_the_whole_run():
    log: list[str] = []
    cell = Cell(
        settings=RunSettings(
            model_path="x.gguf", setting=Setting(threads=2, flash_attn=False), tokens=2
        )
    )
    ours, theirs = Engine("ours", [0.1, 0.3], log), Engine("theirs", [0.25], log)
    run_pairs([cell], ours, theirs, pairs=10, seed=1)
    assert len(log) == 20
    assert all({log[i], log[i + 1]} == {"ours", "theirs"} for i in range(0, 20, 2))
    assert log[::2] != ["ours"] * 10
    assert cell.ratios == [5.0 / 4.0] * 10
    assert agreement_table([cell]).rows[0][-2:] == ("1.250 [1.25–1.25], 10 pairs", "no")
