"""`metrics.jsonl`: torn lines, rewinding, and the parts that processes write on their own."""

from entropy_mcmc.run.journal import Journal


def test_journal_survives_a_torn_line_and_rewinds(tmp_path):
    journal = Journal(tmp_path)
    for chain, step in ((0, 5), (0, 10), (1, 5), (0, 15)):
        journal.append({"kind": "train", "chain": chain, "step": step})
    journal.replace_evaluations([{"set": "test"}])
    with journal.path.open("a") as file:
        file.write('{"kind": "tra')
    assert len(journal.events()) == 5
    journal.rewind(chain=0, step=10)
    assert [(e["chain"], e["step"]) for e in journal.events()] == [(0, 5), (0, 10), (1, 5)]


def test_parts_of_the_journal_are_merged_once(tmp_path):
    def line(chain, step):
        return {"kind": "train", "chain": chain, "step": step}

    journal = Journal(tmp_path)
    for event in (line(0, 1), line(1, 1), line(1, 2), {"kind": "evaluate", "set": "test"}):
        journal.append(event)
    parts = {chain: Journal(tmp_path, chain) for chain in (1, 0, 10)}
    for chain, steps in ((1, (2, 3)), (10, (1,)), (0, (2,))):
        for step in steps:
            parts[chain].append(line(chain, step))
    kept = {chain: part.path.read_bytes() for chain, part in parts.items()}
    journal.merge()
    expected = [(0, 1), (1, 1), (0, 2), (1, 2), (1, 3), (10, 1)]
    assert [(e["chain"], e["step"]) for e in journal.events()] == expected
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
    # Killed after the rewriting and before the removal, it is done again.
    once = journal.path.read_bytes()
    for chain, part in parts.items():
        part.path.write_bytes(kept[chain])
    journal.merge()
    assert journal.path.read_bytes() == once
