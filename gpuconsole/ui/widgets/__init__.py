"""Widgets for the screens: tables, GPU map, dialogs, forms, header and footer. They know nothing of the app."""
