"""The crash rig: kills real processes of a program, everywhere, and says what went wrong and how to see it again.

`Campaign` tries a `Target` (`CommandTarget`: two command lines; or your own) and gives a `Report`. `Outside` is an outside
with faults, `ForkServer` makes lives cheap, `violations` judges runs of this library. The guide: `design/crash-guide.md`.
"""

from ._campaign import Campaign as Campaign
from ._command import CommandTarget as CommandTarget
from ._explore import Explorer as Explorer
from ._history import Asked as Asked
from ._history import Ended as Ended
from ._history import History as History
from ._history import Lived as Lived
from ._history import Promise as Promise
from ._judge import Rules as Rules
from ._kill import Kill as Kill
from ._kill import Schedule as Schedule
from ._oracle import violations as violations
from ._outside import Outside as Outside
from ._outside_client import OutsideClient as OutsideClient
from ._outside_client import OutsideRefused as OutsideRefused
from ._outside_fault import OutsideFault as OutsideFault
from ._outside_fault import OutsidePlan as OutsidePlan
from ._outside_ledger import Act as Act
from ._report import Kills as Kills
from ._report import Report as Report
from ._scratch import Scratch as Scratch
from ._server import ForkServer as ForkServer
from ._server import LifeFailed as LifeFailed
from ._server import Reply as Reply
from ._target import Life as Life
from ._target import Story as Story
from ._target import Target as Target
from ._text import text as text
from ._verdict import Verdict as Verdict
from ._verdict import Violation as Violation
