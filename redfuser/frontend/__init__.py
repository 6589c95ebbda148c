"""redfuser.frontend"""
