"""Reads the metrics of an IOC as Prometheus does, and prints a line of JSON with the content type and every sample.

Usage: metrics_client.py URL
"""

import json
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def main() -> None:
    with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
        content_type = answer.headers["Content-Type"]
        text = answer.read().decode("utf-8")
    families = {}
    for family in text_string_to_metric_families(text):
        samples = [[sample.name, sample.labels, sample.value] for sample in family.samples]
        families[family.name] = {"type": family.type, "help": family.documentation, "samples": samples}
    print(json.dumps({"content_type": content_type, "families": families}))


if __name__ == "__main__":
    main()
