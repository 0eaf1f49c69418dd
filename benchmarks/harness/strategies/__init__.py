"""Strategies of deployment: profiled, planned, deployed and measured on this machine."""
