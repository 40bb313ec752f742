"""How long a notebook may take: apart from what runs notebooks, which needs papermill."""

START_TIMEOUT_S = 120
CELL_TIMEOUT_S = 3600
