"""What people read and look at: reports in text and HTML, and figures."""
