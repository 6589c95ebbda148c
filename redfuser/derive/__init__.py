"""redfuser.derive"""
