"""Averages over one-way links that lose messages: push-sum with one draw for each agent."""
