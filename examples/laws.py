"""Hold a graph that charges a card against the laws; then forget the key of its effect, and see it found."""

import agentruns
from agentruns.testing.laws import LawBrokenError, check_graph_laws, check_submission_laws

ANY = {"type": "object"}


class Bank:
    """Stand for a payment service: a key that it has seen books nothing."""

    def __init__(self) -> None:
        self.payments: dict[str, int] = {}

    def pay(self, cents: int, *, key: str) -> None:
        """Book a payment, once for each key."""
        self.payments.setdefault(key, cents)

    def booked(self) -> list[int]:
        """List what was booked."""
        return list(self.payments.values())


def shop_of(bank: Bank, *, is_careful: bool) -> tuple[agentruns.Deployment, agentruns.GraphBuilder]:
    deployment = agentruns.Deployment(issuer="https://example.com/", subject="shop")
    shop = deployment.add(agentruns.GraphBuilder("shop", "1.0.0", input=ANY, state=ANY, output=ANY))

    @shop.node(entry=True, then="ship")
    async def charge(context: agentruns.GraphNodeContext) -> None:
        # An attempt's id is another one for each attempt; the effect's key is the same for all of them.
        key = context.effect_key if is_careful else str(context.attempt_id)
        bank.pay(context.state["cents"], key=key)

    @shop.node(terminal=True)
    async def ship(context: agentruns.GraphNodeContext) -> agentruns.Finish:
        return agentruns.Finish({"shipped_for": context.state["cents"]})

    return deployment, shop


def test_the_shop_keeps_the_laws() -> None:
    bank = Bank()
    deployment, shop = shop_of(bank, is_careful=True)
    check_graph_laws(deployment, shop, input={"cents": 5}, reset=bank.payments.clear, observe=bank.booked)
    check_submission_laws(deployment, lambda app: app.request(shop, input={"cents": 5}))


def main() -> None:
    test_the_shop_keeps_the_laws()
    bank = Bank()
    deployment, shop = shop_of(bank, is_careful=False)
    try:
        check_graph_laws(deployment, shop, input={"cents": 5}, reset=bank.payments.clear, observe=bank.booked)
    except LawBrokenError as broken:
        print(broken)


if __name__ == "__main__":
    main()
