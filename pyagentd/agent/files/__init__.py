"""What agents did to files: kept around their calls, shown, and put back."""
