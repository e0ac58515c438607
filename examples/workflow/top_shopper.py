"""The customers of an online shop in one country who have spent most, in Lindi."""

from frontends.workflow.ir.types import Type
from frontends.workflow.languages.lindi import Lindi, Query


def workflow(lindi: Lindi) -> Query:
    purchases = lindi.table("purchases", amount=Type.INTEGER, user_id=Type.INTEGER, country=Type.STRING)
    spenders = purchases.where("country = 'USA'").group_by("user_id", "SUM", "amount", name="usa_spenders")
    return spenders.where("amount > 12000", name="usa_big_spenders")
