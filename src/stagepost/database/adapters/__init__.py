"""How to speak on connections that belong to the caller, one file for each family of drivers."""
