"""The plots of reports. Only pages import them, so that `hornbook info` starts without matplotlib."""
