"""An agent that pays and mails, twice: once with a class that is a lie, once with the right one."""

import os

from agent import Agent, Idempotency, tool
from agent.testing import ScriptedModel, call, say


def outside(line: str) -> None:
    """Stands for the payment provider and the mail server. A run's tools work in its own directory."""
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(ledger, f"{line}\n".encode())
    os.close(ledger)


@tool(idempotency=Idempotency.ONCE)
async def pay(amount: int) -> str:
    """Pays an amount."""
    outside(f"pay {amount}")
    return "paid"


@tool(idempotency=Idempotency.IDEMPOTENT)
async def mail(to: str) -> str:
    """Mails a receipt. Idempotent, its author thought; but a second mail is a second mail."""
    outside(f"mail {to}")
    return "sent"


@tool(name="mail", idempotency=Idempotency.ONCE)
async def mail_once(to: str) -> str:
    """Mails a receipt."""
    outside(f"mail {to}")
    return "sent"


MODEL = ScriptedModel([call("pay", amount=3), call("mail", to="ann"), say("Done.")])
careless = Agent(name="mailer", tools=(pay, mail), model=MODEL)
careful = Agent(name="mailer", tools=(pay, mail_once), model=MODEL)
