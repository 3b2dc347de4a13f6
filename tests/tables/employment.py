"""The real table that several tests use, and its seven identities."""

from functools import cache

TOTALS = {
    "nonfarm": ["private", "government"],
    "private": ["goods_producing", "private_service_providing"],
    "service_providing": ["private_service_providing", "government"],
    "goods_producing": ["mining_and_logging", "construction", "manufacturing"],
    "manufacturing": ["durable_goods", "nondurable_goods"],
    "private_service_providing": [
        "trade_transportation_utilties",
        "information",
        "financial_activities",
        "professional_and_business_services",
        "education_and_health_services",
        "leisure_and_hospitality",
        "other_services",
    ],
    "trade_transportation_utilties": [
        "wholesale_trade",
        "retail_trade",
        "transportation_and_warehousing",
        "utilities",
    ],
}
ROUNDED = "trade_transportation_utilties"


@cache
def _table():
    from vega_datasets import data

    return data.us_employment().set_index("month")


def employment():
    """22 columns, 120 months; without the column of changes."""
    return _table().drop(columns="nonfarm_change")


def with_changes():
    return _table().copy()
