"""redfuser.cli"""
