"""KAI's fair shares: how surplus is divided, who may exceed what, and who may take back from whom."""
