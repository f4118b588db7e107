"""What a throughput comes to, and what would explain an MFU that somebody reported."""

from flopkit.diagnosis.doctor import HIGH, Credibility, Diagnosis, Explanation, doctor

__all__ = ["HIGH", "Credibility", "Diagnosis", "Explanation", "doctor"]
