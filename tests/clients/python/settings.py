"""The apps that the programs call."""

import os

SERVER = os.environ["CORNSERVE_URL"]
BASE_URL = f"{SERVER}/v1"
MODEL = os.environ["CORNSERVE_APP"]
RERANKER = os.environ["CORNSERVE_RERANKER"]
"""An app that ranks documents by their length."""
API_KEY = "none"
QUESTION = "Name a color. Answer with one word."
