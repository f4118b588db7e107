"""What a throughput comes to, and what would explain an MFU that somebody reported."""

from flopkit.diagnosis.doctor import doctor
from flopkit.diagnosis.findings import HIGH, Credibility, Diagnosis, Explanation
from flopkit.diagnosis.logs import LogLine, read_log

__all__ = ["HIGH", "Credibility", "Diagnosis", "Explanation", "LogLine", "doctor", "read_log"]
