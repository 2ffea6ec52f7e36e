"""What type checkers must refuse: each line with ``refused`` has a mistake."""

from dataclasses import dataclass

from pyagentd.mission import Limits, Mission, Scripted, delegate


@dataclass
class Person:
    name: str


llm = Scripted("")
print(delegate("Go", llm=llm, signature=Person).value.nam)  # refused
delegate("Go", llm=7)  # refused
delegate("Go", llm=llm, signature=7)  # refused
delegate("Go", llm=llm, tools=[7])  # refused
delegate("Go", llm=llm, context=7)  # refused
delegate("Go", llm=llm, max_turn=7)  # refused
delegate("Go", llm=llm, timeout_s="7")  # refused
Limits(timeout_s="7")  # refused
print(Mission("Go", signature=Person, llm=llm).run().value.nam)  # refused
