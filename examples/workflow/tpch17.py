"""TPC-H query 17 in Lindi: what would be lost each year if small orders of some parts were not taken."""

from frontends.workflow.ir.types import Type
from frontends.workflow.languages.lindi import Lindi, Query


def workflow(lindi: Lindi) -> Query:
    lineitem = lindi.table("lineitem", l_partkey=Type.INTEGER, l_quantity=Type.DOUBLE, l_extendedprice=Type.DOUBLE)
    part = lindi.table("part", p_partkey=Type.INTEGER, p_brand=Type.STRING, p_container=Type.STRING)
    boxes = part.select(["p_partkey"], "p_brand = 'Brand#23' AND p_container = 'MED BOX'")
    sold = lineitem.join(boxes, "l_partkey", "p_partkey")
    averages = sold.group_by("l_partkey", "AVG", "l_quantity")
    limits = averages.select({"partkey": "l_partkey", "most": "0.2 * l_quantity"})
    small = sold.join(limits, "l_partkey", "partkey").where("l_quantity < most")
    lost = small.group_by([], "SUM", "l_extendedprice")
    return lost.select({"avg_yearly": "l_extendedprice / 7.0"}, name="avg_yearly")
