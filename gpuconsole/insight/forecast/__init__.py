"""Forecasts of starts and of Kueue's decisions, and their calibration and backtest."""
