import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    __slots__ = ("version", "id", "attempt", "deadline", "reason", "preemption_class", "may_extend")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PREEMPTION_CLASS_FIELD_NUMBER: _ClassVar[int]
    MAY_EXTEND_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: str
    attempt: int
    deadline: _timestamp_pb2.Timestamp
    reason: str
    preemption_class: int
    may_extend: bool
    def __init__(self, version: _Optional[int] = ..., id: _Optional[str] = ..., attempt: _Optional[int] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[str] = ..., preemption_class: _Optional[int] = ..., may_extend: _Optional[bool] = ...) -> None: ...

class LookRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("state", "id", "step", "path", "progress", "defer_seconds", "message")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Answer.State]
        STATE_IDLE: _ClassVar[Answer.State]
        STATE_ACCEPTED: _ClassVar[Answer.State]
        STATE_SAVING: _ClassVar[Answer.State]
        STATE_SAVED: _ClassVar[Answer.State]
        STATE_DEFER: _ClassVar[Answer.State]
        STATE_CANNOT: _ClassVar[Answer.State]
        STATE_DELIVERED: _ClassVar[Answer.State]
    STATE_UNSPECIFIED: Answer.State
    STATE_IDLE: Answer.State
    STATE_ACCEPTED: Answer.State
    STATE_SAVING: Answer.State
    STATE_SAVED: Answer.State
    STATE_DEFER: Answer.State
    STATE_CANNOT: Answer.State
    STATE_DELIVERED: Answer.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DEFER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    state: Answer.State
    id: str
    step: int
    path: str
    progress: float
    defer_seconds: int
    message: str
    def __init__(self, state: _Optional[_Union[Answer.State, str]] = ..., id: _Optional[str] = ..., step: _Optional[int] = ..., path: _Optional[str] = ..., progress: _Optional[float] = ..., defer_seconds: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
