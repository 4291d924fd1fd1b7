"""A rank in Python that leaves the record that worker.cc leaves; fails when its first argument after the folder is "raise"."""
import os
import sys

folder = sys.argv[1]
name = os.environ["RANK"]
hidden = f"{folder}/.{name}.{os.getpid()}"
with open(hidden, "w") as record:
    for entry in os.environ.items():
        record.write("=".join(entry) + "\0")
    record.write("\0")
    for argument in sys.argv[2:] + [f"name={__name__}", f"unbuffered={not sys.stdout.line_buffering and sys.stdout.write_through}"]:
        record.write(argument + "\0")
os.rename(hidden, f"{folder}/ranks/{name}")
if sys.argv[2:3] == ["raise"]:
    raise ValueError("as told")
