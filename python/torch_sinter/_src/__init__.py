"""The code behind the facade. Import from `torch_sinter`; names in here may move."""
