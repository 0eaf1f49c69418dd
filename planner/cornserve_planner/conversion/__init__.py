"""Converts measured throughputs to the seconds of each component [C Algorithm 3]."""
