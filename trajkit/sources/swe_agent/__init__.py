"""Trajectories of SWE-agent and mini-swe-agent: files of a run, one for each instance."""
