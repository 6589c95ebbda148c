"""redfuser.runtime"""
