from rocketstore._native.append.put_result import PutResult
from rocketstore._native.put.writer import Writer
from rocketstore._native.sync.queue_positions import QueueState
from rocketstore.values.arguments import Body
from rocketstore.values.durability import Durability
from rocketstore.values.timestamps import Duration

def put_message(
    writer: Writer,
    body: Body,
    properties: bytes,
    *,
    flag: int,
    sys_flag: int,
    born_timestamp_ms: int | None,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    lights: list[QueueState],
    durability: Durability | None,
    timeout_s: Duration | None,
    expected: int = -1,
    only_latest: bool = False,
) -> PutResult: ...
