import asyncio, importlib.util, sys
from pathlib import Path
from agentruns.testing.drives import *
spec=importlib.util.spec_from_file_location("dw","/work/main/tests/faults/doomed_worker.py"); m=importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
def test_x(database_url, run, tmp_path):
    async def work():
        async with open_world(database_url, m.graph(tmp_path/"l", shape="fan", hangs_in="b"), lease=m.LEASE, maximum_parallel_nodes=3) as w:
            r=await w.submitted()
            t=asyncio.create_task(w.driven(r))
            await asyncio.wait([t],timeout=3)
            print(await w.kinds(), (tmp_path/"l").read_text())
            t.cancel()
            await t
    run(work())
