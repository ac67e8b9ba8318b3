"""The screens of the console, and the actions and dialogs that they share."""
