"""Tests of the store on a bucket alone. Its files import each other by name."""
